"""Arrays of other libraries in GPU memory: read, made, and reduced where they are."""
