"""FedGKD on Cora with 10 clients, from Python."""

import fedgkd

run = fedgkd.run("fedgkd", dataset="cora", clients=10, rounds=100, seed=0)
print(f"mean test accuracy of the personal models: {run.result()['test_accuracy']:.2%}")
model, graph = run.personal_models()[3], run.federation.graphs[3]
print("client 3, class probabilities of its first node:", model.probabilities(graph)[0].round(3))
