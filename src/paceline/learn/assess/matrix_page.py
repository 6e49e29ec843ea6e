def render(cells, name):
    return ""
