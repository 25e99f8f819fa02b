"""`treadle program`: what one step of a model computes, and what it costs."""
