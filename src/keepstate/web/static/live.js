// Changes as they happen.
"use strict";
