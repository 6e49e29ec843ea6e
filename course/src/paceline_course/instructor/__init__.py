"""What whoever teaches the course needs: the day, the class, what learners handed in, and what it says. No server."""
