"""As much of PromQL as the chart's alerts use, over samples that were scraped: so their own text is what is checked."""
