"""What `paceline plan` predicts, shown: one HTML page and pictures, from records alone."""
