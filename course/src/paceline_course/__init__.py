"""The course: labs, exercises that are checked by running them, quizzes, progress. Content stands in `course/`."""
