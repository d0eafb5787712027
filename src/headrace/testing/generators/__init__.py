"""Random streams that are like what an intent says: traits, stories, the generator and the shrinker."""
