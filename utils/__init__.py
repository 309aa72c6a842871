"""The course's shared module. Importing it alone stays light: no torch."""
