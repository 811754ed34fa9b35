"""The forward pass of a trained model on a CPU: whole layers in C, in fp32, bf16 or int8."""
