"""Scripts that run inside the rendered pods; standard library only, any Python from 3.10."""
