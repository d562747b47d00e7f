"""What a child process that starts anew (multiprocessing's spawn) finds as `torch`: Flambeau again."""

import sys

from flambeau.script import importer, tracebacks

del sys.modules["torch"]
importer.install()
importer.find("torch")
tracebacks.in_texts()
