"""What runs inside a training process and watches it. It measures, never judges, and changes no bit."""
