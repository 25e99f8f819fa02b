"""`treadle bench pipeline`: what pipelines are worth on the CPU device, beside what is predicted of them."""
