"""Logs of nccl-tests, rccl-tests, OSU and kin, read into curves in SI units."""

from railwright.measure.logs.curve import Device as Device
from railwright.measure.logs.curve import Header as Header
from railwright.measure.logs.curve import MeasuredCurve as MeasuredCurve
from railwright.measure.logs.curve import Point as Point
from railwright.measure.logs.read import read_log as read_log
