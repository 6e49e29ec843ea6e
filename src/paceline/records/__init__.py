"""The waist of Paceline: what is measured is written here, what is judged or shown is read from here.

Only the standard library and msgspec are imported below this package, so that every part can use it.
"""
