"""Make the models of an experiment equal in parameters, FLOPs or time, besides the batches they share."""
