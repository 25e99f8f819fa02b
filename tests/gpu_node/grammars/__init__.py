"""Tests of gpu_node.grammars."""
