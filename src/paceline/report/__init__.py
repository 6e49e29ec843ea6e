"""Reading runs and showing them."""
