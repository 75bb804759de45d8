"""What `shotfit demo` does and draws."""
