"""The calls of the hub's client that `push_to_hub` makes, noted in place of being carried out."""

from huggingface_hub import RepoUrl


class Uploads:
    """In place of the hub client's calls: what it would have uploaded, and how."""

    def __init__(self):
        self.files, self.asked = {}, {}

    def __call__(self, token):
        self.asked["token"] = token
        return self

    def create_repo(self, repo_id, private, exist_ok):
        # A second push of the same classifier is a new revision, not an error.
        assert exist_ok
        self.asked["private"] = private
        return RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(self, *, repo_id, folder_path, **asked):
        self.asked |= asked
        self.files = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        return f"https://huggingface.co/{repo_id}/commit/1"
