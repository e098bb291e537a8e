"""HarmonyBatch (IWQoS'24): the policy, its price lists and groups, and their exact evaluation."""
