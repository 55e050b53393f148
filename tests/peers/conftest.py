"""Options of the peers' suite."""


def pytest_addoption(parser):
    parser.addoption("--record", action="store_true",
                     help="write what was measured to chapters/data")
