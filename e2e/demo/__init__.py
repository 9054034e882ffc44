"""The main job from nothing: a node, the operator, two vLLM pods and the cache that they share.

``python -m e2e.demo up`` does what a platform team does by hand: install the chart, apply a Secret and
one resource, wait for Ready. Then it proves, on prompts never seen before, that one pod answers from
what another computed.
"""
