"""Measures keepstate against what it is built on and what it is compared with: ``python -m bench``.

One run measures all contenders of a group in turns, so that what else the machine does hits them alike, and compares
them with the group's baseline round by round. Figures of different runs are never compared.
"""
