"""The planning of `harmonybatch`: price lists, groups, and their exact settling."""
