"""`auto_optimize="search"`: variations of the standard recipe, predicted, measured, and chosen from."""
