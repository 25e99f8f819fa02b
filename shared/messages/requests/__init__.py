"""A request on its way: asked, promised, queued, answered."""
