"""Arrays of other libraries in GPU memory: reading them, making them, reducing them where they lie."""
