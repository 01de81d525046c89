"""Language models behind one port, `kept.core.ports.Model`.

Whoever needs a reply calls `kept.models.asking.ask`; `kept.models.connect.connect` makes a model of
a config. Nothing here loads a library for HTTP, prices or JSON before the first call that needs it.
"""
