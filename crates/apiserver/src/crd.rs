//! CustomResourceDefinitions: from a stored definition to the resources it makes the server serve.
