"""What tests of the documentation share: the fences of its pages, and who follows their steps."""
