"""What a run did, folded from the files it left."""
