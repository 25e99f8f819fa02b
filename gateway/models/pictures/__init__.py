"""Images that a model is shown: their files, their form, and how many tokens they are."""
