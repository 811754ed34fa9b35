"""The HTTP service: OpenAI's, text-embeddings-inference's and weft's own routes over one compute thread.

Requests come in on an event loop (`app`, `server`), are checked and tokenized off it, and wait in the queues of their
model. One thread (`worker`) computes for all models in turns and hands what it has to the event loop, once per step.
"""
