"""The search of a training job's layouts: branch and bound, the front, and the reasons in words."""
