"""The one loop, how its steps are carried out, and when to leave the first stage."""
