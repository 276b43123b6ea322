/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Makes a structure appear among the skeleton's types even when no map or global names it. */
#ifndef LOWROAD_EXPORT_H
#define LOWROAD_EXPORT_H

#define EXPORT_STRUCT(name) struct name *export_##name __attribute__((unused))

#endif
