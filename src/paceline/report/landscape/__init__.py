"""What `paceline landscape` measured, shown: one HTML page and pictures, from records alone."""
