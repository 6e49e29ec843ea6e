"""How the loss lies around trained weights: slices, curvature, sharpness, the way there, and the way to another run."""
