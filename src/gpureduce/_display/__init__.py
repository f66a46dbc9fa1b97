"""Tables, pages and figures: what measurements and explanations are shown with."""
