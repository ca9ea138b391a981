"""Mixed queries by many submitters on one cluster for a long time: nothing grows, nothing is wrong, shares are fair."""
