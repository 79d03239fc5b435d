"""The examples, each started as its README says and sent records that are hard to carry."""
