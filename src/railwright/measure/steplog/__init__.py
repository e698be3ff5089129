"""Logs of training frameworks: the steps that a real job took."""

from railwright.measure.steplog.log import LoggedStep as LoggedStep
from railwright.measure.steplog.log import StepLog as StepLog
from railwright.measure.steplog.reading import EXPECTED as EXPECTED
from railwright.measure.steplog.reading import is_step_log as is_step_log
from railwright.measure.steplog.reading import read_step_log as read_step_log
from railwright.measure.steplog.reading import why_untimed as why_untimed
