"""`treadle pipeline`: what bounds a model on devices, and the pipeline that overlaps its operators."""
