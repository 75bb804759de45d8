"""A fixed list of everyday words, none of them a class of the embedded suite.

It stands for what a text encoder knows beyond the task at hand: for names that are never the right
answer when a `Calibration` is fitted, and for the drift of names in the study of stopping rules. It
was written down before any measurement, is the same for every task, and is never looked up against
one.
"""

_WORDS = """
    bathroom balcony basement bedroom ceiling chimney corridor cupboard curtain doorway elevator
    fence garage hallway kitchen lawn pavement roof staircase wall
    blanket bucket button carpet cushion drawer faucet funnel handle hinge kettle ladle
    mattress napkin pillow shelf sponge towel tray
    brick cardboard cement clay cotton fabric foam glass leather marble metal paper plastic rubber
    sand stone straw wood wool wire
    cliff coast field forest glacier harbor hill island lake meadow pond river swamp valley
    circle corner cube cylinder grid line oval pyramid rectangle spiral stripe triangle
    barber carpenter clerk gardener lawyer librarian nurse painter plumber sailor tailor waiter
    airport bakery courtyard market museum office pharmacy prison warehouse
    autumn evening midnight noon spring summer winter
    cable engine lever pipe pump sensor switch valve wheel
"""
VOCABULARY: tuple[str, ...] = tuple(_WORDS.split())
