"""HarmonyBatch (IWQoS'24): the policy, its price lists, groups, and their exact evaluation."""
