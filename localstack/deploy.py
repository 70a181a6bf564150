"""Creates or updates one CloudFormation stack in LocalStack and waits for it.

    deploy.py TEMPLATE STACK [PARAMETER=VALUE ...]

Deploying the same again changes nothing and succeeds. Prints the worker's settings as shell lines.
"""

import os
import sys

import boto3
from botocore.exceptions import ClientError, WaiterError

# LocalStack takes any credentials. That these are not real ones also keeps a mistaken endpoint harmless.
CLOUDFORMATION = boto3.client(
    "cloudformation",
    endpoint_url=os.environ.get("AWS_ENDPOINT_URL", "http://127.0.0.1:4566"),
    region_name="us-east-1",
    aws_access_key_id="test",
    aws_secret_access_key="test",
)
WAIT = {"Delay": 1, "MaxAttempts": 120}

# States that CloudFormation cannot update from, because the stack never came to be.
STILLBORN = {"CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED"}


def main(template, stack, *parameters):
    with open(template, encoding="utf-8") as file:
        request = {
            "StackName": stack,
            "TemplateBody": file.read(),
            "Parameters": [
                dict(zip(("ParameterKey", "ParameterValue"), parameter.split("=", 1))) for parameter in parameters
            ],
            "Capabilities": ["CAPABILITY_IAM"],
        }
    try:
        done = deploy(stack, request)
        outputs = describe(stack).get("Outputs")
    except (ClientError, WaiterError) as error:
        tell_failures(stack)
        sys.exit(f"localstack: stack {stack}: {error}")
    if not outputs:
        # LocalStack calls an update complete that failed; only the outputs are then missing.
        tell_failures(stack)
        sys.exit(f"localstack: stack {stack} could not be updated.")
    print(f"localstack: stack {stack} is {done}.", file=sys.stderr)
    print_settings({output["OutputKey"]: output["OutputValue"] for output in outputs})


def deploy(stack, request):
    current = describe(stack)
    if current and current["StackStatus"] in STILLBORN:
        CLOUDFORMATION.delete_stack(StackName=stack)
        CLOUDFORMATION.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig=WAIT)
        current = None
    if not current:
        CLOUDFORMATION.create_stack(**request)
        CLOUDFORMATION.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig=WAIT)
        return "created"
    try:
        CLOUDFORMATION.update_stack(**request)
    except ClientError as error:
        if "No updates are to be performed" in str(error):
            return "up to date"
        raise
    CLOUDFORMATION.get_waiter("stack_update_complete").wait(StackName=stack, WaiterConfig=WAIT)
    return "updated"


def describe(stack):
    try:
        return CLOUDFORMATION.describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise


def tell_failures(stack):
    try:
        events = CLOUDFORMATION.describe_stack_events(StackName=stack)["StackEvents"]
    except ClientError:
        return
    for event in reversed(events):
        if event["ResourceStatus"].endswith("_FAILED") and "ResourceStatusReason" in event:
            print(f"localstack: {event['LogicalResourceId']}: {event['ResourceStatusReason']}", file=sys.stderr)


def print_settings(outputs):
    queue = outputs["QueueUrl"].rsplit("/", 1)[1]
    variable = queue.upper().replace("-", "_").replace(".", "_")
    print(f"# The dead-letter queue: {outputs['DeadLetterQueueUrl']}")
    print(f"export LEASEHOLD_QUEUES={queue}")
    print(f"export LEASEHOLD_{variable}_URL={outputs['QueueUrl']}")
    print(f"export LEASEHOLD_TABLE={outputs['TableName']}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
