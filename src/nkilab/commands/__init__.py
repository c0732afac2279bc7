"""The verbs of `nkilab`: their options and examples; what they do is in other modules, loaded when they run."""
