"""What a model or a recorded run would take on hardware that is not here."""
