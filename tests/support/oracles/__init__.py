"""What results should be, computed plainly and without the code that they judge.

Property tests take them. They may import definitions of the DSL, never its runtime or stores.
"""
